import { helmFunctions } from 'fairlead/helm'

export const functions = await helmFunctions(new URL('../watches.yaml', import.meta.url), {
  // Kinds that the templates make only with other values than those of values.yaml: kinds: { Website: [Ingress] }
})
