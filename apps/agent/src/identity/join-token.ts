import { CloudlessError, errorKindOf } from '@cloudless/base';
import { readSecretFile } from '@cloudless/identity/files';
import type { AgentConfig } from '../agent-config.js';
import { findJoinTokenProblem } from '../tls-settings.js';

/** Longest text that is read from standard input, in characters. */
const MAX_INPUT = 4_096;

/** Reads the join token of the settings. */
export class JoinTokenReader {
  /** Text from standard input, which can be read only once. */
  private input: Promise<string> | undefined;

  constructor(
    private readonly settings: Pick<AgentConfig, 'joinToken' | 'joinTokenFile'>,
    private readonly readInput: () => Promise<string> = readStandardInput,
  ) {}

  /** True when the settings name a token. */
  get isConfigured(): boolean {
    return this.settings.joinToken !== undefined || this.settings.joinTokenFile !== undefined;
  }

  /**
   * Reads the token; a file is read each time, so that an operator can replace its content.
   * @returns Undefined without a token in the settings, or when the file does not exist any more.
   * @throws kind `invalid` when the text is no join token, `precondition` when other users can read
   *   the file. Messages never repeat the text.
   */
  async read(): Promise<string | undefined> {
    const { joinToken, joinTokenFile } = this.settings;
    if (joinTokenFile === undefined) return joinToken;
    const isInput = joinTokenFile === '-';
    const text = isInput ? await (this.input ??= this.readInput()) : await readFile(joinTokenFile);
    if (text === undefined) return undefined;
    const problem = findJoinTokenProblem(text.trim());
    if (problem === undefined) return text.trim();
    const place = isInput ? 'standard input' : joinTokenFile;
    throw new CloudlessError('invalid', `--join-token-file: the text of ${place} ${problem}`);
  }
}

async function readFile(path: string): Promise<string | undefined> {
  try {
    return Buffer.from(await readSecretFile(path)).toString('utf8');
  } catch (reason) {
    if (errorKindOf(reason) === 'notFound') return undefined;
    throw reason;
  }
}

async function readStandardInput(): Promise<string> {
  let text = '';
  for await (const part of process.stdin.setEncoding('utf8')) {
    text += String(part);
    if (text.length > MAX_INPUT) break;
  }
  return text;
}
