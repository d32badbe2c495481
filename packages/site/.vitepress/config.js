import { slugOf } from '../../../test/docs/links.ts'
import sidebar from '../sidebar.json' with { type: 'json' }

/** Pages are written by test/docs/site.ts. The site asks no other host for anything. */
export default {
  title: 'Fairlead',
  description: 'Write Kubernetes operators as TypeScript functions; Fairlead runs all of them on one platform',
  srcDir: 'pages',
  outDir: '../../build/site',
  cleanUrls: false,
  // Those of tutorials, on the reader's machine.
  ignoreDeadLinks: 'localhostLinks',
  markdown: {
    anchor: { slugify: slugOf },
    // Braces in code are text, not expressions of Vue.
    config: (markdown) => {
      const { code_inline: inlineCode } = markdown.renderer.rules
      markdown.renderer.rules.code_inline = (...args) => inlineCode(...args).replace('<code', '<code v-pre')
      // An indented block has no language, and scrolls as a fenced one does.
      markdown.renderer.rules.code_block = (tokens, index, ...args) => {
        tokens[index].info = 'txt'
        return markdown.renderer.rules.fence(tokens, index, ...args)
      }
    },
  },
  themeConfig: {
    sidebar,
    outline: [2, 3],
    search: { provider: 'local', options: { _render: searchable } },
    nav: [
      { text: 'Tutorial', link: '/tutorial' },
      { text: 'Guides', link: '/guides/' },
      { text: 'Reference', link: '/functions' },
      { text: 'Guarantees', link: '/guarantees' },
    ],
  },
}

/** Decisions, which are long and many, would hide the pages that readers search for. */
function searchable(source, env, markdown) {
  return env.relativePath.startsWith('decisions/0') ? '' : markdown.render(source, env)
}
