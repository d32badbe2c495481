/** Returns the first element that matches. */
export const $ = (selector, within = document) => within.querySelector(selector)
/** Returns all elements that match. */
export const $$ = (selector, within = document) => [...within.querySelectorAll(selector)]

/** Returns why a request was refused. */
export const reason = async (response) => {
  try {
    return (await response.json()).say
  } catch {
    return response.statusText
  }
}
