import { functionRbac, platformRbac, yamlOf } from '#crds'
import { manifest, type Reconciler } from '#sdk'

/** The rights that these functions need, for kubectl apply -f -. */
export const generateRbac = (functions: readonly Reconciler[], platform: boolean): string =>
  yamlOf([...(platform ? platformRbac() : []), ...functions.flatMap((one) => functionRbac(manifest(one)))]).trimEnd()
