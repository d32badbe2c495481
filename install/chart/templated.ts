import { yamlOf } from '../yaml.ts'

/** The place of a template expression in the YAML. */
interface Place {
  /** The spaces before the key or the dash. */
  indent: string
  key: string
  /** `- ` for an item of a list. */
  dash: string
}

type Piece = (place: Place) => string

const TOKEN = /^( *)((?:- )*)(?:([\w./-]+|"[^"]*"): )?TEMPLATE(\d+)END$/gm
const INLINE = /TEMPLATE(\d+)END/g

/** Objects in which some values are Helm template expressions. */
export class Templated {
  readonly #pieces: Piece[] = []

  /** Returns a placeholder for `{{ … }}` in place of a value, or of a part of it. */
  value(expression: string): string {
    return this.#token(({ indent, dash, key }) => `${indent}${dash}${key === '' ? '' : `${key}: `}{{ ${expression} }}`)
  }

  /** Returns a placeholder for a structure of the chart's values. While the value is empty, the key is left out. */
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

  /** Returns a placeholder for a structure of the chart's values. */
  structure(path: string): string {
    return this.#token(
      ({ indent, key }) => `${indent}${key}:\n${indent}  {{- toYaml ${path} | nindent ${indent.length + 2} }}`,
    )
  }

  /** Returns a placeholder for items of a list, given as lines without indentation. */
  items(...lines: string[]): string {
    return this.#token(({ indent }) => lines.map((line) => `${indent}${line}`).join('\n'))
  }

  /** Returns the objects as YAML, with the expressions in place of their placeholders. */
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

/** Escapes braces in descriptions, which Helm would evaluate. */
const escaped = (text: string): string => text.replaceAll('{{', '{{ "{{" }}')
