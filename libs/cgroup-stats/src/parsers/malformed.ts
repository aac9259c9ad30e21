import { CloudlessError } from '@cloudless/base';

/** A kernel file does not have the documented form. Parsers never guess values. */
export class MalformedCgroupFileError extends CloudlessError {
  constructor(
    /** Kernel name of the file, for example `cpu.stat` or `/proc/meminfo`. */
    readonly file: string,
    /** Line number, counted from 1; 0 when something is missing from the whole file. */
    readonly line: number,
    readonly problem: string,
  ) {
    super('invalid', `${file}:${line}: ${problem}`);
  }
}
