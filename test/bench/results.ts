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
