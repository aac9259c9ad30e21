import { CloudlessError } from '@cloudless/base';

/** A file of the kernel does not read as documented. It is never guessed at. */
export class MalformedCgroupFileError extends CloudlessError {
  constructor(
    /** Name as given by the kernel, like `cpu.stat` or `/proc/meminfo`. */
    readonly file: string,
    /** Line it was found in, counted from 1; 0 when something is missing from the whole file. */
    readonly line: number,
    readonly problem: string,
  ) {
    super('invalid', `${file}:${line}: ${problem}`);
  }
}
