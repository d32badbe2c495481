/** As kubectl takes it; several objects as several documents. The package is loaded where something is written. */
export async function yamlOf(content: object | readonly object[]): Promise<string> {
  const { stringify } = await import('yaml')
  const documents = [content].flat().map((object) => stringify(object, { lineWidth: 0 }))
  return documents.join('---\n')
}
