import { InvalidInputError, type Violation } from '@cloudless/base';

/** Collects all problems of one input, so that one error reports all of them. */
export class Problems {
  private readonly violations: Violation[] = [];

  note(field: string, message: string): void {
    this.violations.push({ field, message });
  }

  /** Adds a problem when the value is not a whole number from `least` to `most`. */
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

  /** Adds a problem when the value is not one of `allowed`. */
  oneOf(field: string, value: string, allowed: readonly string[]): void {
    if (!allowed.includes(value))
      this.note(field, `must be one of ${allowed.join(', ')}, is ${value}`);
  }

  notEmpty(field: string, value: string): void {
    if (value === '') this.note(field, 'must not be empty');
  }

  /** @throws InvalidInputError with all collected problems, if there are any. */
  throwIfAny(): void {
    if (this.violations.length > 0) throw new InvalidInputError(this.violations);
  }
}
