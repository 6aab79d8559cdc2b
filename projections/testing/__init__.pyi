from projections.testing.trial import ViewTrial as ViewTrial
