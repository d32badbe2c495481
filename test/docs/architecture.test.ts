import { existsSync, readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { rooms as roomRules } from '../../oxlint.config.ts'
import packageJson from '../../package.json' with { type: 'json' }
import { returns, drive as runMachine } from '../reconcile/driver.ts'
import { cyclesIn, importsOf, reachableFrom, sourceFiles } from '../support/imports.ts'
import { architecturePage, codeIn, type EditStep, PICTURE, roomOf, roomsOf, stepsOf } from './architecture.ts'
import { mayImport, pictureFromCode } from './draw.ts'
import { layersOf } from './drawing.ts'

const page = architecturePage()
const steps = stepsOf(page)
const rooms = [...mayImport.keys()]
const files = sourceFiles()
const imports = importsOf(files)
/** Files that are to be split. */
const TOO_LONG: string[] = []
const textOf = (file: string): string => readFileSync(file, 'utf8')

/** Rows, list items and paragraphs of the page: a name is looked for in the files of its block. */
const blocks = page.split(/\n(?=\||- \*\*|\d+\. )|\n\n/)
const isPath = (code: string): boolean => /^[^\s#]+(?:\/[^\s]*|\.(?:ts|md|json))$/.test(code)
const isDoor = (code: string): boolean =>
  `#${code}` in packageJson.imports || `#${code.split('/')[0]}/*` in packageJson.imports

describe('each file that the page names exists, and each name in it', () => {
  const paths = blocks.flatMap(codeIn).filter((code) => isPath(code) && !isDoor(code))

  it.each([...new Set(paths)])('%s', (path) => expect(existsSync(path)).toBe(true))

  it.each(namesOnThePage())('$name in $sources', ({ name, sources }) => {
    expect(sources.some((file) => isDeclared(name, textOf(file)))).toBe(true)
  })
})

describe('the steps of one edit', () => {
  it('are numbered in order, and a caller comes before the step that it calls', () => {
    expect(steps.map(({ number }) => number)).toEqual(steps.map((_, index) => index + 1))
    expect(steps.filter(({ number, caller = 0 }) => caller >= number)).toEqual([])
  })

  const calledBy = (...ways: (string | undefined)[]) =>
    steps
      .filter(({ caller, by }) => caller !== undefined && ways.includes(by))
      .map((step) => ({ ...step, from: steps[(step.caller ?? 0) - 1]?.file ?? '' }))

  it('are called directly or in a way that the page explains', () => {
    const calls = calledBy(undefined, 'watch', 'handler', 'invoke', 'WORK')
    expect([steps[0]?.number, ...calls.map(({ number }) => number)]).toEqual(steps.map(({ number }) => number))
  })

  it.each(calledBy(undefined, 'watch'))('$number: $from imports $file, also through a door, and names $name', (step) =>
    expect(isReached(step.from, step)).toBe(true),
  )

  it.each(calledBy('handler'))('$number: $file registers $name as the handler that $from calls', (step) => {
    expect(textOf(step.from)).toMatch(/\bhandler\(/)
    expect(textOf(step.file)).toMatch(new RegExp(`\\bhandler: .*${step.name}\\(`))
  })

  it.each(calledBy('invoke'))('$number: $from calls what a file of cli/process/ makes with $name of $file', (step) => {
    expect(textOf(step.from)).toMatch(/\binvoke\(/)
    expect(files.some((file) => file.startsWith('cli/process/') && isReached(file, step))).toBe(true)
  })

  it.each(calledBy('WORK'))('$number: $from and $file are of the room that has the stream $by', ({ from, file }) =>
    expect([from, file].map((one) => roomOf(one, rooms))).toEqual(['streams/queue', 'streams/queue']),
  )

  it('ask in the order that the page shows when a run changes an owned object and writes the status', () => {
    const pod = { apiVersion: 'v1', kind: 'Pod', metadata: { name: 'p' } }
    const asked = runMachine({ call: [returns({ apply: [pod], status: { phase: 'Up' } })] })
    expect(page).toContain(`\`${asked.map(({ ask }) => ask.do).join(' ')}\``)
  })
})

describe('the rooms', () => {
  it('may import on the page what the lint rule allows', () => {
    const shown = roomsOf(page).flatMap((row) => row.rooms.map((room) => [room, row.imports]))
    expect(Object.fromEntries(shown)).toEqual({ ...roomRules, cli: [] })
  })

  it('contain every source file', () => {
    const outside = files.filter((file) => !rooms.includes(roomOf(file, rooms)) && !file.startsWith('deploy/'))
    expect(outside).toEqual([])
  })

  it('import only rooms above them in the list of the lint rule', () => {
    const order = Object.keys(roomRules)
    const up = order.flatMap((room, place) =>
      (mayImport.get(room) ?? []).filter((other) => order.indexOf(other) >= place).map((other) => [room, other]),
    )
    expect(up).toEqual([])
  })

  it('are without a cycle in what they may import, and in what they import, types too', () => {
    const imported = new Map(rooms.map((room) => [room, importedBy(room)]))
    expect(cyclesIn(mayImport)).toEqual([])
    expect(cyclesIn(imported)).toEqual([])
  })

  it('are without a cycle inside, types too', () => expect(cyclesIn(imports)).toEqual([]))
})

describe('the picture', () => {
  it('is what node test/docs/draw.ts draws', () => expect(textOf(PICTURE)).toBe(pictureFromCode()))

  it('has each room once, above all rooms that it may import', () => {
    const layers = layersOf(mayImport)
    const layerOf = (room: string) => layers.findIndex((layer) => layer.includes(room))
    expect(layers.flat().toSorted()).toEqual(rooms.toSorted())
    const up = rooms.filter((room) => mayImport.get(room)?.some((other) => layerOf(other) <= layerOf(room)))
    expect(up).toEqual([])
  })

  it('has an arrow of a direct call only where the lint rule allows the import', () => {
    const direct = steps.filter(({ caller, by }) => caller !== undefined && by === undefined)
    const arrows = direct.map(({ caller = 0, file }) => [steps[caller - 1]?.file ?? '', file])
    const between = arrows.map((ends) => ends.map((file) => roomOf(file, rooms)) as [string, string])
    const forbidden = between.filter(([from, to]) => from !== to && !mayImport.get(from)?.includes(to))
    expect(forbidden).toEqual([])
  })
})

it('keeps each source file within 500 lines', ({ annotate }) => {
  const lengths = new Map(files.map((file) => [file, textOf(file).split('\n').length - 1]))
  const sorted = [...lengths.values()].toSorted((one, other) => one - other)
  const long = files.filter((file) => (lengths.get(file) ?? 0) > 500)
  void annotate(`median of ${files.length} source files: ${sorted[Math.floor(sorted.length / 2)]} lines`)
  expect(long, 'split the file; delete from TOO_LONG what is short enough now').toEqual(TOO_LONG)
})

function namesOnThePage(): { name: string; sources: string[] }[] {
  return blocks.flatMap((block) => {
    const codes = codeIn(block)
    const sources = codes.filter((code) => code.endsWith('.ts') && isPath(code))
    const names = codes.filter((code) => /^#?[A-Za-z_]\w*$/.test(code) && !rooms.includes(code))
    return sources.length === 0 ? [] : names.map((name) => ({ name, sources }))
  })
}

/** As a function, type, constant, method or property. */
function isDeclared(name: string, text: string): boolean {
  const declaration = `\\b(?:function\\*?|class|const|interface|type) ${name}\\b`
  const member = `^ +(?:readonly |async |\\*)*${name}(?:<.*>)?\\??[(:]`
  return new RegExp(`${declaration}|${member}`, 'm').test(text)
}

/** Whether a file names the function of a step, and imports its file: directly, or through files of the two rooms. */
function isReached(from: string, { file, name }: EditStep): boolean {
  const isNamed = new RegExp(`(?<!\\w)${name}\\b`).test(textOf(from))
  const between = [roomOf(from, rooms), roomOf(file, rooms)]
  const graph = new Map([...imports].filter(([one]) => between.includes(roomOf(one, rooms))))
  return isNamed && (from === file || reachableFrom(graph, from).has(file))
}

function importedBy(room: string): string[] {
  const paths = files.filter((file) => roomOf(file, rooms) === room).flatMap((file) => imports.get(file) ?? [])
  return [...new Set(paths.map((path) => roomOf(path, rooms)))].filter((other) => other !== room)
}
