/** The flags of a dev cluster; see `FLAGS` for their meaning. */
export interface Flags {
  readonly port: number;
  readonly opsPort: number;
  readonly agentPort: number;
  readonly workloadPort: number;
  readonly agents: number;
  readonly runtime: string;
  readonly criSocket?: string;
  readonly dataDir?: string;
  readonly example?: string;
  readonly secure?: true;
  readonly demo?: true;
  readonly verbose?: true;
}

/** One flag. */
export interface FlagDefinition {
  /** Name without dashes. */
  readonly name: string;
  readonly short?: string;
  /** What the value is, in the help; absent: the flag has no value. */
  readonly value?: string;
  readonly help: string;
  readonly fallback?: string | number;
  /** Largest value of a flag with a number. */
  readonly max?: number;
  readonly choices?: readonly string[];
}

/** `invalid`: `message` names the flag and what is wrong. */
export type ParsedFlags =
  | { readonly kind: 'run'; readonly flags: Flags }
  | { readonly kind: 'help' }
  | { readonly kind: 'version' }
  | { readonly kind: 'invalid'; readonly message: string };

/** All flags, in the order of the help. */
export const FLAGS: readonly FlagDefinition[];
/** Parses the arguments after the name of the program. */
export function parseFlags(args: readonly string[]): ParsedFlags;
/** Returns the text of `--help`. */
export function formatHelp(): string;
