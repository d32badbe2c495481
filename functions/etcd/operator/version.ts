import { versionIn } from './pod.ts'
import type { ClusterObject } from './resource.ts'

type Version = readonly [major: number, minor: number, patch: number]

const parse = (version: string): Version => {
  const [major = 0, minor = 0, patch = 0] = version.split('.').map(Number)
  return [major, minor, patch]
}

const isBefore = (one: Version, other: Version): boolean => {
  const at = one.findIndex((number, index) => number !== other[index])
  return at >= 0 && (one[at] ?? 0) < (other[at] ?? 0)
}

/** The oldest supported version. Its members can join as learners, and report whether they are ready. */
const OLDEST = '3.5.12'
/**
 * The oldest patch version, keyed by minor version, from which members may go one minor version up. With older ones,
 * etcd may lose a promotion.
 */
const LEAST_BEFORE: Record<string, string> = { '3.5': '3.5.32', '3.6': '3.6.11' }

export const minorOf = (version: string): string => parse(version).slice(0, 2).join('.')

/** Returns the reason why a new cluster cannot have the version. Undefined: it can. */
export function supportedFrom(object: ClusterObject): string | undefined {
  const version = versionIn(object)
  return isBefore(parse(version), parse(OLDEST))
    ? `spec.version ${version} is older than ${OLDEST}, the oldest etcd that is supported: set spec.version to 3.7.3`
    : undefined
}

/** Returns the reason why members must not go from one version to the other. Undefined: they may. */
function pathRefusal(from: string, to: string): string | undefined {
  const [[major, minor], [toMajor, toMinor]] = [parse(from), parse(to)]
  if (minorOf(from) === minorOf(to)) return undefined
  if (isDowngrade(from, to) && toMajor === major && toMinor === minor - 1 && minor >= 7) return undefined
  if (major !== toMajor || toMinor !== minor + 1) {
    const allowed = minor >= 7 ? `${major}.${minor - 1}, ${major}.${minor}` : `${major}.${minor}`
    return `members run ${from}, and spec.version is ${to}: set it to a version of ${allowed} or ${major}.${minor + 1}`
  }
  const least = LEAST_BEFORE[minorOf(from)]
  return least !== undefined && isBefore(parse(from), parse(least))
    ? `members run ${from}, and go to ${minorOf(to)} from ${least} on only: set spec.version to ${least} first`
    : undefined
}

/** Whether the target is a lower minor version, for which etcd must be prepared. */
export const isDowngrade = (from: string, to: string): boolean =>
  minorOf(from) !== minorOf(to) && isBefore(parse(to), parse(from))

const runs = (object: ClusterObject): string => object.status.currentVersion ?? versionIn(object)

export const isDowngrading = (object: ClusterObject): boolean => isDowngrade(runs(object), versionIn(object))

/** Returns the reason why the members do not go to the version in the spec. */
export const refusedPath = (object: ClusterObject): string | undefined => pathRefusal(runs(object), versionIn(object))

/**
 * Returns the version that new members run. A member with an older version cannot join before etcd is prepared for it,
 * so the older version counts only when it is the recorded target.
 */
export function versionFor(object: ClusterObject): string {
  const version = versionIn(object)
  if (refusedPath(object) !== undefined) return runs(object)
  return isDowngrading(object) && object.status.targetVersion !== version ? runs(object) : version
}
