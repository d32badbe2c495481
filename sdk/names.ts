import { createHash } from 'node:crypto'

const HASH_LENGTH = 10

const hashOf = (name: string): string => createHash('sha256').update(name).digest('hex').slice(0, HASH_LENGTH)

/**
 * Returns a name within `limit` characters: 253 for objects, 63 for values of labels. A shorter name stays as it is. A
 * longer name is cut and gets a hash of the whole, so that different names stay different.
 *
 * @example
 * import { shortName } from 'fairlead'
 * shortName('web', 63) // => 'web'
 * shortName('a'.repeat(100), 63).length // => 63
 */
export function shortName(name: string, limit = 253): string {
  if (name.length <= limit) return name
  const head = name.slice(0, limit - HASH_LENGTH - 1).replace(/[-.]+$/, '')
  return `${head}-${hashOf(name)}`
}

/**
 * Returns a name for a Deployment, 242 characters at most: names of its ReplicaSets have eleven more, and 253 at most.
 *
 * @example
 * import { deploymentName } from 'fairlead'
 * deploymentName('a'.repeat(253)).length // => 242
 */
export const deploymentName = (name: string): string => shortName(name, 242)

/**
 * Returns a name for a Service: a DNS label of 63 characters at most that begins with a letter. Different names stay
 * different.
 *
 * @example
 * import { serviceName } from 'fairlead'
 * serviceName('web') // => 'web'
 * serviceName('my.site').startsWith('s-my-site-') // => true
 */
export function serviceName(name: string): string {
  if (/^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$/.test(name)) return name
  const words = `s-${name.replaceAll(/[^a-z0-9-]/g, '-')}`
  return `${words.slice(0, 63 - HASH_LENGTH - 1).replace(/-+$/, '')}-${hashOf(name)}`
}
