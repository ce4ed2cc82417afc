from fedrec.federation import streams
