import { readFileSync } from 'node:fs'

/** A step of one edit, as a row of docs/architecture.md has it. */
export interface EditStep {
  number: number
  file: string
  name: string
  /** The step that makes the call; undefined: the API server does. */
  caller: number | undefined
  /** What lies between both, if the call is indirect. */
  by: string | undefined
}

/** Rooms that share a row of docs/architecture.md. */
export interface RoomRow {
  rooms: string[]
  imports: string[]
}

export const PAGE = 'docs/architecture.md'
export const PICTURE = 'docs/architecture.svg'

export const architecturePage = (): string => readFileSync(PAGE, 'utf8')

/** Cells of the table rows of a page. */
const rowsOf = (page: string): string[][] =>
  page
    .split('\n')
    .filter((line) => line.startsWith('|'))
    .map((line) =>
      line
        .split('|')
        .slice(1, -1)
        .map((cell) => cell.trim()),
    )

export const codeIn = (text: string): string[] => [...text.matchAll(/`([^`]+)`/g)].map(([, code = '']) => code)

export function stepsOf(page: string): EditStep[] {
  return rowsOf(page)
    .filter(([number = '']) => /^\d+$/.test(number))
    .map(([number, file = '', name = '', caller = '']) => {
      const [from, by] = caller.split(', ')
      const [path = ''] = codeIn(file)
      return {
        number: Number(number),
        file: path,
        name: codeIn(name)[0] ?? '',
        caller: from === 'API server' ? undefined : Number(from),
        by,
      }
    })
}

/** The files that run at one edit: those of its steps, and those of the table of its other files. */
export function editFilesOf(page: string): string[] {
  const others = page.split(/^## /m).find((section) => section.startsWith('One edit, file by file')) ?? ''
  return [
    ...new Set(stepsOf(page).map(({ file }) => file)),
    ...rowsOf(others).flatMap(([, files = '']) => codeIn(files)),
  ]
}

/** The rooms and their imports. `all` and `none` are not rooms. */
export function roomsOf(page: string): RoomRow[] {
  return rowsOf(page)
    .filter(([room = '', ...cells]) => room.startsWith('`') && cells.length === 4)
    .map((cells) => ({ rooms: codeIn(cells[0] ?? ''), imports: codeIn(cells[4] ?? '') }))
}

/** The page with the imports that the rules allow. */
export function withImports(page: string, rules: Readonly<Record<string, readonly string[]>>): string {
  const filled = page.split('\n').map((line) => {
    const cells = line.split('|')
    const allowed = rules[codeIn(cells[1] ?? '')[0] ?? '']
    if (!line.startsWith('| `') || allowed === undefined) return line
    const imports = allowed.map((door) => `\`${door}\``).join(', ') || 'none'
    return [...cells.slice(0, 5), ` ${imports} `, ''].join('|')
  })
  return filled.join('\n')
}

/** The innermost room that has the file. */
export function roomOf(file: string, rooms: readonly string[]): string {
  const found = rooms.filter((room) => file.startsWith(`${room}/`)).sort((one, other) => other.length - one.length)[0]
  return found ?? (file.split('/')[0] as string)
}
