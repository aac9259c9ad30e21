import { InvalidInputError, type Violation } from '@cloudless/base';

/** Collects what is wrong with one input, so that all of it is said at once. */
export class Problems {
  private readonly violations: Violation[] = [];

  note(field: string, message: string): void {
    this.violations.push({ field, message });
  }

  /** Notes a value that is not a whole number from `least` to `most`. */
  wholeNumber(
    field: string,
    value: number,
    least: number,
    most: number = Number.MAX_SAFE_INTEGER,
  ): void {
    if (Number.isSafeInteger(value) && value >= least && value <= most) return;
    const range =
      most === Number.MAX_SAFE_INTEGER ? `of at least ${least}` : `from ${least} to ${most}`;
    this.note(field, `must be a whole number ${range}, is ${value}`);
  }

  /** Notes a value that is none of `allowed`. */
  oneOf(field: string, value: string, allowed: readonly string[]): void {
    if (!allowed.includes(value))
      this.note(field, `must be one of ${allowed.join(', ')}, is ${value}`);
  }

  notEmpty(field: string, value: string): void {
    if (value === '') this.note(field, 'must not be empty');
  }

  /** @throws InvalidInputError with everything noted, unless nothing was. */
  throwIfAny(): void {
    if (this.violations.length > 0) throw new InvalidInputError(this.violations);
  }
}
