/** A text inside a file of another language; what stands in its holes is not read. */
export interface Passage {
  origin: 'comment' | 'message'
  start: number
  end: number
  holes: readonly { start: number; end: number }[]
}

/** A document of textlint whose paragraphs are the passages of a file. */
export function documentOf(text: string, passages: readonly Passage[]) {
  const locate = locatorOf(text)
  const node = (type: string, start: number, end: number) => ({
    type,
    raw: text.slice(start, end),
    range: [start, end] as const,
    loc: { start: locate(start), end: locate(end) },
  })
  const children = passages.map(({ origin, start, end, holes }) => {
    const parts = partsOf(text, start, end, holes)
    return {
      ...node('Paragraph', start, end),
      origin,
      children: parts.map(({ type, from, to }) => ({ ...node(type, from, to), value: text.slice(from, to) })),
    }
  })
  return { ...node('Document', 0, text.length), children }
}

/** Words and code spans between the holes. */
function partsOf(text: string, start: number, end: number, holes: readonly { start: number; end: number }[]) {
  const code = [...text.slice(start, end).matchAll(/`[^`]*`/g)].map(({ 0: found, index }) => ({
    type: 'Code',
    from: start + index,
    to: start + index + found.length,
  }))
  const skipped = [...holes.map((hole) => ({ type: 'Hole', from: hole.start, to: hole.end })), ...code].toSorted(
    (a, b) => a.from - b.from,
  )
  const parts: { type: string; from: number; to: number }[] = []
  let at = start
  for (const { type, from, to } of skipped) {
    if (from > at) parts.push({ type: 'Str', from: at, to: from })
    if (type === 'Code' && from >= at) parts.push({ type, from, to })
    at = Math.max(at, to)
  }
  if (at < end) parts.push({ type: 'Str', from: at, to: end })
  return parts
}

function locatorOf(text: string): (offset: number) => { line: number; column: number } {
  const starts = [0, ...[...text.matchAll(/\n/g)].map(({ index }) => index + 1)]
  return (offset) => {
    let low = 0
    for (let high = starts.length; high - low > 1; ) {
      const middle = (low + high) >> 1
      if ((starts[middle] as number) <= offset) low = middle
      else high = middle
    }
    return { line: low + 1, column: offset - (starts[low] as number) }
  }
}
