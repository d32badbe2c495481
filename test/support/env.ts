/** Sets variables of this process until the end of the block. */
export function withEnv(env: Record<string, string>): Disposable {
  const before = Object.keys(env).map((name) => [name, process.env[name]] as const)
  Object.assign(process.env, env)
  return {
    [Symbol.dispose]() {
      // One by one: an object in its place would no longer be what the system, and os.tmpdir(), see.
      for (const [name, value] of before)
        if (value === undefined) delete process.env[name]
        else process.env[name] = value
    },
  }
}
