/** The function that answers, in each answer of its server: what is not signed so may be a proxy's word. */
export const FUNCTION_HEADER = 'fairlead-function'
/** The version of the function that answers. */
export const REVISION_HEADER = 'fairlead-revision'
