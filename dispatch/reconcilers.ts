import { type KubeObject, type ReconcilerSpec, type ResourceRef, selectionOf } from '#contracts'

/** The resources of which everything has to be known before the first run. */
export const resourcesOf = ({ for: primary, owns, related }: ReconcilerSpec): ResourceRef[] => [
  primary,
  ...owns,
  ...related,
]

/** Whether a reconciler is for an object at all: its namespaces and selectors. */
export const selectorOf = ({ for: primary }: ReconcilerSpec): ((object: KubeObject) => boolean) => selectionOf(primary)
