/**
 * The header in which the server of a function names the function, in each of its answers. An answer without the header
 * may come from a proxy.
 */
export const FUNCTION_HEADER = 'fairlead-function'
/** The types of the CloudEvents of requests to a function, and of its answers. */
export const EVENT_TYPES = {
  reconcile: { request: 'dev.fairlead.reconcile', answer: 'dev.fairlead.outcome' },
  read: { request: 'dev.fairlead.read', answer: 'dev.fairlead.external' },
  perform: { request: 'dev.fairlead.perform', answer: 'dev.fairlead.result' },
} as const
/** The header with the version of the function that answers. */
export const REVISION_HEADER = 'fairlead-revision'
