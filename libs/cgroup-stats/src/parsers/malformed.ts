import { CloudlessError } from '@cloudless/base';

/** Error of kind `invalid` for a kernel file that does not have the documented form. */
export class MalformedCgroupFileError extends CloudlessError {
  constructor(
    /** Kernel name of the file, for example `cpu.stat` or `/proc/meminfo`. */
    readonly file: string,
    /** Line number, counted from 1; 0 when something is missing from the whole file. */
    readonly line: number,
    /** What is wrong with the file, without its name. */
    readonly problem: string,
  ) {
    super('invalid', `${file}:${line}: ${problem}`);
  }
}
