from eventstore.personal.sealing import Sealed as Sealed
