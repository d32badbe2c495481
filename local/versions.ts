/** Compares versions as programs print them: `1.36.3`, `go1.26`, `v2.15.2`. Missing parts are 0. */
export function isAtLeast(version: string, needed: string): boolean {
  const [major = 0, minor = 0, patch = 0] = numbers(version)
  const [needMajor = 0, needMinor = 0, needPatch = 0] = numbers(needed)
  if (major !== needMajor) return major > needMajor
  return minor === needMinor ? patch >= needPatch : minor > needMinor
}

function numbers(version: string): number[] {
  return (version.match(/\d+/g) ?? []).map(Number)
}
