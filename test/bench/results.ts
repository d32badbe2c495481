import { appendFileSync, existsSync, readFileSync } from 'node:fs'

/** The results of a bench: those that the file of JSON lines has, if one is given, and those that are added to it. */
export class Results<Result> {
  readonly all: Result[]
  readonly #file: string | undefined

  constructor(file: string | undefined) {
    this.#file = file
    const lines = file !== undefined && existsSync(file) ? readFileSync(file, 'utf8').trim().split('\n') : []
    this.all = lines.map((line) => JSON.parse(line) as Result)
  }

  add(result: Result): void {
    this.all.push(result)
    if (this.#file !== undefined) appendFileSync(this.#file, `${JSON.stringify(result)}\n`)
  }
}

/** The named ones of an option, in their own order, whatever the order and the case in which they were named. */
export function chosen<Name extends string>(text: string, names: readonly Name[]): Name[] {
  const wanted = text.toLowerCase().split(',')
  const unknown = wanted.find((one) => !names.some((name) => name.toLowerCase() === one))
  if (unknown !== undefined) throw new Error(`there is no ${JSON.stringify(unknown)}: ${names.join(', ')}`)
  return names.filter((name) => wanted.includes(name.toLowerCase()))
}
