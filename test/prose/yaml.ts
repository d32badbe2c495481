import { CST, type Document, isScalar, Lexer, parseAllDocuments, visit } from 'yaml'
import { documentOf, type Passage } from './passages.ts'

const WORDS = /[a-z]{2,}[,;:]? +[a-z]{2,}[^]* [a-z]{2,}/i

/** Tokens of the lexer that are not in the text. */
const MARKS = new Set<string | null>(['doc-mode', 'flow-error-end', 'scalar'])

/** The comments of a YAML file, and the values that read as sentences. */
export function yamlDocument(text: string) {
  const passages = commentsOf(text)
  for (const document of parseAllDocuments(text) as Document[])
    visit(document, {
      Scalar: (key, node) => {
        if (key !== 'key' && isScalar(node) && typeof node.value === 'string' && WORDS.test(node.value) && node.range)
          passages.push({ origin: 'message', start: node.range[0], end: node.range[1], holes: [] })
      },
    })
  return documentOf(text, passages)
}

/** Comments of lines that follow each other are one text. */
function commentsOf(text: string): Passage[] {
  const passages: Passage[] = []
  let at = 0
  for (const token of new Lexer().lex(text)) {
    const last = passages.at(-1)
    if (token.startsWith('#') && last !== undefined && /^[ \t]*\n[ \t]*$/.test(text.slice(last.end, at)))
      Object.assign(last, { end: at + token.length, holes: [...last.holes, { start: last.end, end: at + 1 }] })
    else if (token.startsWith('#'))
      passages.push({ origin: 'comment', start: at + 1, end: at + token.length, holes: [] })
    if (!MARKS.has(CST.tokenType(token))) at += token.length
  }
  return passages
}
