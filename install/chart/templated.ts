import { yamlOf } from '../yaml.ts'

/** Where in the YAML a piece of a template stands. */
interface Place {
  /** Before the key or the dash. */
  indent: string
  key: string
  /** `- ` for an item of a list. */
  dash: string
}

type Piece = (place: Place) => string

const TOKEN = /^( *)((?:- )*)(?:([\w./-]+|"[^"]*"): )?TEMPLATE(\d+)END$/gm
const INLINE = /TEMPLATE(\d+)END/g

/** Objects in which some values are pieces of a Helm template. */
export class Templated {
  readonly #pieces: Piece[] = []

  /** `{{ … }}` in place of a value, or of a part of it. */
  value(expression: string): string {
    return this.#token(({ indent, dash, key }) => `${indent}${dash}${key === '' ? '' : `${key}: `}{{ ${expression} }}`)
  }

  /** A structure of the values; left out, with its key, while it is empty. */
  optional(path: string): string {
    return this.#token(({ indent, key }) =>
      [
        `${indent}{{- with ${path} }}`,
        `${indent}${key}:`,
        `${indent}  {{- toYaml . | nindent ${indent.length + 2} }}`,
        `${indent}{{- end }}`,
      ].join('\n'),
    )
  }

  /** A structure of the values. */
  structure(path: string): string {
    return this.#token(
      ({ indent, key }) => `${indent}${key}:\n${indent}  {{- toYaml ${path} | nindent ${indent.length + 2} }}`,
    )
  }

  /** Items of a list, given as lines without their indentation. */
  items(...lines: string[]): string {
    return this.#token(({ indent }) => lines.map((line) => `${indent}${line}`).join('\n'))
  }

  /** The objects as YAML, with the pieces in their places. */
  async render(objects: readonly object[], condition?: string): Promise<string> {
    const text = escaped(await yamlOf(objects)).replaceAll(
      TOKEN,
      (_, indent: string, dash: string, key = '', index: string) => this.#piece(index)({ indent, dash, key }),
    )
    const whole = text.replaceAll(INLINE, (_, index: string) => this.#piece(index)({ indent: '', dash: '', key: '' }))
    return condition === undefined ? whole : `{{- if ${condition} }}\n${whole.trimEnd()}\n{{- end }}\n`
  }

  #token(piece: Piece): string {
    this.#pieces.push(piece)
    return `TEMPLATE${this.#pieces.length - 1}END`
  }

  #piece(index: string): Piece {
    const piece = this.#pieces[Number(index)]
    if (piece === undefined) throw new TypeError(`no piece ${index}`)
    return piece
  }
}

/** Descriptions may have what a template would read. */
const escaped = (text: string): string => text.replaceAll('{{', '{{ "{{" }}')
