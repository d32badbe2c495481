import { createHash } from 'node:crypto'

const HASH_LENGTH = 10

const hashOf = (name: string): string => createHash('sha256').update(name).digest('hex').slice(0, HASH_LENGTH)

/**
 * A name for an object, or a value for a label (limit 63), made from a longer one: within the limit it stays as it is,
 * beyond it is cut and told apart by a hash of the whole.
 */
export function shortName(name: string, limit = 253): string {
  if (name.length <= limit) return name
  const head = name.slice(0, limit - HASH_LENGTH - 1).replace(/[-.]+$/, '')
  return `${head}-${hashOf(name)}`
}

/** A name for a Deployment: its ReplicaSets add eleven characters, and have 253 at most. */
export const deploymentName = (name: string): string => shortName(name, 242)

/** A name for a Service, which is a DNS label that begins with a letter; other names have many more characters. */
export function serviceName(name: string): string {
  if (/^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$/.test(name)) return name
  const words = `s-${name.replaceAll(/[^a-z0-9-]/g, '-')}`
  return `${words.slice(0, 63 - HASH_LENGTH - 1).replace(/-+$/, '')}-${hashOf(name)}`
}
