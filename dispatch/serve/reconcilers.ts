import { type ResourceRef } from '#contracts'
import { type ReconcilerSpec } from '#spec'

/** The resources of which everything has to be known before the first run. */
export const resourcesOf = ({ for: primary, owns, related }: ReconcilerSpec): ResourceRef[] => [
  primary,
  ...owns,
  ...related,
]
