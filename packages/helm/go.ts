/** Texts that the operators on Go read, by the rules of Go. */

const SECONDS: Record<string, number> = { ns: 1e-9, us: 1e-6, µs: 1e-6, μs: 1e-6, ms: 1e-3, s: 1, m: 60, h: 3600 }

/** Returns the seconds of a duration as time.ParseDuration reads it: `1h30m`. Undefined: it is none, or negative. */
export function secondsOf(text: string): number | undefined {
  if (text === '0') return 0
  if (!/^\+?((\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))+$/.test(text)) return undefined
  const parts = text.matchAll(/([\d.]+)([a-zµμ]+)/g)
  return parts.reduce((sum, [, number, unit = '']) => sum + Number(number) * (SECONDS[unit] ?? 0), 0)
}

/** Whether an annotation is true as strconv.ParseBool reads it; any other text is false. */
export const isTrue = (text: string | undefined): boolean => /^(1|t|T|true|TRUE|True)$/.test(text ?? '')

/** Replaces `$NAME` and `${NAME}` as os.ExpandEnv does. A variable that is not set is an empty text. */
export const expanded = (text: string, env: NodeJS.ProcessEnv): string =>
  text.replaceAll(
    /\$(?:\{([^}]*)\}|(\{)|([*#$@!?\-0-9])|([A-Za-z_]\w*)?)/g,
    (_, braced?: string, open?: string, special?: string, name?: string) => {
      const variable = braced ?? open ?? special ?? name
      if (variable === undefined) return '$'
      return open === undefined ? (env[variable] ?? '') : ''
    },
  )
