/** One completion of a word. */
export interface Candidate {
  readonly value: string;
  /** Explanation that zsh and fish show beside the value. Empty: none. */
  readonly description: string;
}
