const UNRELEASED = '## Unreleased\n'

/**
 * Returns the changelog with the unreleased section under `version`, and the text of that section. Throws an Error if
 * the section is empty.
 */
export function releaseChangelog(text: string, version: string, date: string): { text: string; changes: string } {
  const begins = text.indexOf(UNRELEASED)
  if (begins < 0) throw new Error('CHANGELOG.md has no heading "## Unreleased": add it above the releases')
  const after = begins + UNRELEASED.length
  const next = text.indexOf('\n## ', after)
  const changes = text.slice(after, next < 0 ? undefined : next).trim()
  if (changes === '') throw new Error(`CHANGELOG.md has nothing under "Unreleased": write the changes of ${version}`)
  const released = `${UNRELEASED}\n## ${version} (${date})\n\n${changes}\n`
  return { text: text.slice(0, begins) + released + (next < 0 ? '' : text.slice(next)), changes }
}
