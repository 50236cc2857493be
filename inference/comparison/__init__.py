"""The comparison of a MAP fit with the posterior: are the zeros of the MAP zeros of the posterior too?"""
