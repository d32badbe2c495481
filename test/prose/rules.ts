import type { TextlintKernelRule, TextlintRuleModule } from '@textlint/kernel'
import { PATTERNS, type Pattern } from './patterns.ts'

/** A text of a document: a paragraph, a table cell, a heading, or a comment or string of code. */
interface Piece {
  type: string
  raw: string
  range: readonly [number, number]
  children?: readonly Piece[]
  /** Set in files of code only. */
  origin?: 'comment' | 'message'
}

/** Each rule asks for the prose of the same pieces. */
const known = new WeakMap<object, string>()

/** The text of a piece at its positions: letters for code spans, spaces for markup. */
function proseOf(piece: Piece): string {
  let prose = known.get(piece)
  if (prose !== undefined) return prose
  prose = ''
  const write = (node: Piece) => {
    const [start, end] = node.range.map((offset) => offset - piece.range[0]) as [number, number]
    if (node.type !== 'Str' && node.type !== 'Code') node.children?.forEach(write)
    else
      prose = prose?.padEnd(start) + (node.type === 'Str' ? node.raw.replaceAll(/\s/g, ' ') : 'c'.repeat(end - start))
  }
  write(piece)
  known.set(piece, prose)
  return prose
}

const ruleOf =
  ({ regex, only, instead }: Pattern): TextlintRuleModule =>
  ({ report, locator, RuleError }) => {
    const check = (piece: Piece) => {
      const where = piece.type === 'Header' ? 'heading' : (piece.origin ?? 'text')
      if (only !== undefined && only !== where) return
      for (const { 0: found, index } of proseOf(piece).matchAll(regex))
        report(piece as never, new RuleError(`${where} "${found.trim()}": ${instead}`, { padding: locator.at(index) }))
    }
    return { Paragraph: check, TableCell: check, Header: check }
  }

export const RULES: TextlintKernelRule[] = PATTERNS.map((pattern) => ({ ruleId: pattern.name, rule: ruleOf(pattern) }))
