import { type Comment, parseSync, Visitor } from 'oxc-parser'
import { documentOf, type Passage } from './passages.ts'

/** Comments for tools, and the parts of doc comments that are code. */
const DIRECTIVE = /^\s*(?:biome-|oxlint-|@ts-|#__|\/|@type)/
const EXAMPLE = /@example\b[^]*?(?=\n\s*\*?\s*@\w|$)/g
const WORDS = /[a-z]{2,}[,;:]? +[a-z]{2,}[^]* [a-z]{2,}/i

/** The comments of a TypeScript file, and the strings that read as sentences. */
export function codeDocument(text: string, path: string) {
  const { program, comments } = parseSync(path, text)
  const passages = [...passagesOfComments(comments, text)]
  const string = (
    { start, end }: { start: number; end: number },
    holes: readonly { start: number; end: number }[] = [],
  ) => {
    if (WORDS.test(text.slice(start + 1, end - 1)))
      passages.push({ origin: 'message', start: start + 1, end: end - 1, holes })
  }
  new Visitor({
    Literal: (node) => typeof node.value === 'string' && string(node),
    TemplateLiteral: (node) =>
      string(
        node,
        node.expressions.map(({ start, end }) => ({ start: start - 2, end: end + 1 })),
      ),
  }).visit(program)
  return documentOf(text, passages)
}

/** Line comments that follow each other are one text. */
function* passagesOfComments(comments: readonly Comment[], text: string): Generator<Passage> {
  let open: Passage | undefined
  for (const { type, value, start, end } of comments) {
    if (DIRECTIVE.test(value)) continue
    const follows = open !== undefined && type === 'Line' && /^[ \t]*\n[ \t]*$/.test(text.slice(open.end, start))
    if (open !== undefined && follows) {
      open = { ...open, end, holes: [...open.holes, { start: open.end, end: start + 2 }] }
      continue
    }
    if (open !== undefined) yield open
    open = undefined
    if (type === 'Line') open = { origin: 'comment', start: start + 2, end, holes: [] }
    else yield { origin: 'comment', start: start + 2, end: end - 2, holes: holesOfBlock(value, start + 2) }
  }
  if (open !== undefined) yield open
}

function holesOfBlock(value: string, from: number): { start: number; end: number }[] {
  const stars = [...value.matchAll(/^[ \t]*\*+/gm)]
  return [...stars, ...value.matchAll(EXAMPLE)].map(({ 0: found, index }) => ({
    start: from + index,
    end: from + index + found.length,
  }))
}
