/** The parts of a version that can be raised. */
const PARTS = ['major', 'minor', 'patch'] as const

const numbersOf = (version: string): number[] | undefined =>
  /^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)$/.exec(version)?.slice(1).map(Number)

/** The version after `current`: `wanted` is `major`, `minor`, `patch`, or three numbers. Throws unless it is higher. */
export function nextVersion(current: string, wanted: string): string {
  const now = numbersOf(current)
  if (now === undefined) throw new Error(`package.json has the version ${current}: write three numbers, such as 0.1.0`)
  const index = PARTS.indexOf(wanted as (typeof PARTS)[number])
  if (index >= 0) return now.map((number, at) => (at < index ? number : at === index ? number + 1 : 0)).join('.')
  const next = numbersOf(wanted)
  if (next === undefined)
    throw new Error(`${wanted} is not a version: give major, minor, patch or three numbers, such as 0.2.0`)
  if (compareVersions(next, now) <= 0)
    throw new Error(`${wanted} is not higher than ${current}: a version is released once`)
  return wanted
}

/** Returns a number below 0 if the first version is lower. */
function compareVersions(one: readonly number[], other: readonly number[]): number {
  const differences = one.map((number, at) => number - (other[at] ?? 0))
  return differences.find((difference) => difference !== 0) ?? 0
}
