/** Returns YAML for kubectl, with several objects as several documents. The YAML package is loaded on demand. */
export async function yamlOf(content: object | readonly object[]): Promise<string> {
  const { stringify } = await import('yaml')
  const documents = [content].flat().map((object) => stringify(object, { lineWidth: 0 }))
  return documents.join('---\n')
}
