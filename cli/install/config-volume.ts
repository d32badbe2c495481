import type { Reconciler } from '#sdk'
import { CONFIG_FOLDER, TOKEN_SECONDS } from '#spec'

const VOLUME = 'config'

export interface ConfigVolume {
  pod: object
  container: object
  /** Whether the pod has a token of its account, which then has to exist. */
  hasToken: boolean
}

/**
 * Returns what the pod of a function over HTTP has for its configuration: one volume with a file for each value, which
 * the kubelet keeps up to date. What is missing is left out, so that the pod starts, and its function names it.
 * `account`: that of the pod, if it has a token.
 */
export function configVolume({ external }: Reconciler, account: string): ConfigVolume {
  const values = external?.config ?? []
  const hasToken = values.some((one) => 'audience' in one)
  if (values.length === 0) return { pod: {}, container: {}, hasToken }
  const sources = values.map((one) => {
    if ('audience' in one)
      return { serviceAccountToken: { audience: one.audience, expirationSeconds: TOKEN_SECONDS, path: one.name } }
    const [source, from] = 'secret' in one ? (['secret', one.secret] as const) : (['configMap', one.configMap] as const)
    return { [source]: { name: from.name, optional: true, items: [{ key: from.key, path: one.name }] } }
  })
  return {
    pod: { ...(hasToken && { serviceAccountName: account }), volumes: [{ name: VOLUME, projected: { sources } }] },
    container: { volumeMounts: [{ name: VOLUME, mountPath: CONFIG_FOLDER, readOnly: true }] },
    hasToken,
  }
}
