from fedrec.federation.sampling import Sampler
