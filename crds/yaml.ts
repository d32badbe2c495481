import { stringify } from 'yaml'

/** As kubectl takes it; several objects as several documents. */
export const yamlOf = (content: object | readonly object[]): string =>
  [content]
    .flat()
    .map((object) => stringify(object, { lineWidth: 0 }))
    .join('---\n')
