/** A way of writing that readers stumble over. */
export interface Pattern {
  name: string
  /** Undefined: in every kind of text. */
  only?: 'heading' | 'comment'
  /** Matched against text in which letters stand for code spans. */
  regex: RegExp
  /** What to write in its place. */
  instead: string
}

const START = String.raw`(?<=^\s*|[.!?]\s+|:\s+(?=[A-Z]))`
const VERB = String.raw`\b(?:is|are|was|were|has|have|had|can|cannot|may|must|will|does|do)\b`
/** Up to the end of the sentence, which is not a question. */
const STATEMENT = String.raw`(?![^.!]*\?)`

/** docs/style.md has an example of each. */
export const PATTERNS: readonly Pattern[] = [
  {
    name: 'clause as subject',
    regex: new RegExp(
      `${START}(?:Who|Whoever|Whatever|Whose)\\b${STATEMENT}|` +
        `${START}What\\b${STATEMENT}(?=(?:[^.!;:]*?${VERB}){2})|` +
        `\\b(?:what|whatever) (?:is|are|was|were)\\b${STATEMENT}`,
      'g',
    ),
    instead: 'name the thing, such as "an object that …"',
  },
  {
    name: 'nobody',
    regex: /\b(?:no|every|some)body\b/gi,
    instead: 'name who: "no reconciler", "users cannot", "each client"',
  },
  { name: 'anew', regex: /\banew\b/gi, instead: 'write "again" or "from the beginning"' },
  {
    name: 'is no X',
    regex: /(?<!\bthere )\b(?:is|are|was|were|be) no (?!(?:longer|more|less|fewer|later|earlier|older|newer)\b)/gi,
    instead: 'write "is not a …" or "does not …"',
  },
  { name: 'of whom', regex: /\b(?:of|to|for|from|by|with|in|on) whom\b/gi, instead: 'make two sentences' },
  { name: 'fronted Of', regex: new RegExp(`${START}Of (?!course\\b)|; of `, 'g'), instead: 'put the subject first' },
  {
    name: 'software that speaks',
    regex: /\b(?:says?|said|saying|tells?|told(?!\s+apart)|telling|owes?|owed|owing)\b/gi,
    instead: 'write "prints", "reports", "states", "shows", "specifies", "must still run"',
  },
  {
    name: 'comment without a subject',
    only: 'comment',
    regex: /^\s*(?:Of|By|With|Without|From|Per|On|In|At|For|To|As|Among|Under|Through)\b[^.,:;]{0,60}\.?\s*$/g,
    instead: 'begin with a noun or a verb, such as "The key of …" or "Counts …"',
  },
  {
    name: 'heading that cannot stand alone',
    only: 'heading',
    regex:
      /^\s*(?:\d+\. )?(?:(?:A whole|Everything|To|And|But|Also)\b|(?:What|Who)\b(?!.*\?\s*$)).*|\b(?:it|them|they|this|those)\b|\bones?\s*$/gi,
    instead: 'name the subject of the section',
  },
]
