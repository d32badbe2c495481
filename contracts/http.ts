/** The function that answers, in each answer of its server: what is not signed so may be a proxy's word. */
export const FUNCTION_HEADER = 'fairlead-function'
/** The types of the CloudEvents that ask a function, and of those that answer. */
export const EVENT_TYPES = {
  reconcile: { request: 'dev.fairlead.reconcile', answer: 'dev.fairlead.outcome' },
  read: { request: 'dev.fairlead.read', answer: 'dev.fairlead.external' },
  perform: { request: 'dev.fairlead.perform', answer: 'dev.fairlead.result' },
} as const
/** The version of the function that answers. */
export const REVISION_HEADER = 'fairlead-revision'
