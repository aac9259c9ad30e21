import { CliFailure, ExitCode } from '../call/failure.js';
import type { CliIo } from '../io/io.js';

/** Returns true when the user can be asked: standard input and standard output are a terminal. */
export function canAsk({ terminal }: CliIo): boolean {
  return terminal !== undefined;
}

/** Asks a question on the terminal. Any other answer than `y` or `yes` means no. */
export async function askUser(io: CliIo, question: string): Promise<boolean> {
  await io.stderr.write(`${question} [y/N] `);
  const answer = await readLine(io);
  if (answer === undefined) await io.stderr.write('\n');
  return /^\s*y(es)?\s*$/i.test(answer ?? '');
}

/**
 * Reads one line of standard input.
 * @returns Undefined at the end of the input.
 * @throws the reason of the abort when the command is ended, for example with Ctrl-C.
 */
export async function readLine({ stdin, signal }: CliIo): Promise<string | undefined> {
  const read = async (): Promise<string | undefined> => {
    const decoder = new TextDecoder();
    let text = '';
    for await (const chunk of stdin.readChunks()) {
      text += decoder.decode(chunk, { stream: true });
      if (text.includes('\n')) return text.slice(0, text.indexOf('\n'));
    }
    return text === '' ? undefined : text;
  };
  return Promise.race([read(), rejectOnAbort(signal)]);
}

/** Keys in raw mode. */
const CTRL_C = '\u0003';
const CTRL_D = '\u0004';
const ERASE = new Set(['\b', '\u007f']);

/**
 * Asks for one line that the terminal does not show, such as a secret.
 * @returns Undefined when there is no terminal to ask, or the user has typed Ctrl-D on an empty line.
 * @throws {@link CliFailure} when the user has typed Ctrl-C; an error when the command is ended.
 */
export async function readHiddenLine(
  { terminal, stdin, stderr, signal }: CliIo,
  question: string,
): Promise<string | undefined> {
  if (terminal === undefined) return undefined;
  await stderr.write(question);
  // Raw mode shows nothing; keys such as Ctrl-C are then input.
  const restore = terminal.makeRaw();
  try {
    return await Promise.race([readKeys(stdin.readChunks()), rejectOnAbort(signal)]);
  } finally {
    restore();
    await stderr.write('\n');
  }
}

async function readKeys(chunks: AsyncIterable<Uint8Array>): Promise<string | undefined> {
  const decoder = new TextDecoder();
  // Not a loop over the chunks, whose end would close the terminal before its mode is restored.
  const iterator = chunks[Symbol.asyncIterator]();
  let line = '';
  for (;;) {
    const { done, value } = await iterator.next();
    if (done === true) return line === '' ? undefined : line;
    for (const key of decoder.decode(value, { stream: true })) {
      if (key === '\r' || key === '\n') return line;
      if (key === CTRL_C) throw new CliFailure(ExitCode.interrupted, 'interrupted');
      if (key === CTRL_D && line === '') return undefined;
      if (ERASE.has(key)) line = line.slice(0, -1);
      else if (key >= ' ') line += key;
    }
  }
}

/** Rejects when the command is ended, for example with SIGTERM. */
function rejectOnAbort(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    const stop = (): void => reject(new Error('the command was ended', { cause: signal.reason }));
    if (signal.aborted) stop();
    else signal.addEventListener('abort', stop, { once: true });
  });
}
