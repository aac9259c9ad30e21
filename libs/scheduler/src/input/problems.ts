import { InvalidInputError, type Violation } from '@cloudless/base';

/** Collects all problems of one input, so that one error reports all of them. */
export class Problems {
  private readonly violations: Violation[] = [];

  /** @param field - Path of the field in the input, such as `tolerations[0].key`. */
  add(field: string, message: string): void {
    this.violations.push({ field, message });
  }

  /** Adds a problem when the value is not a whole number from `min` to `max`. */
  requireWholeNumber(
    field: string,
    value: number,
    min: number,
    max: number = Number.MAX_SAFE_INTEGER,
  ): void {
    if (Number.isSafeInteger(value) && value >= min && value <= max) return;
    const range = max === Number.MAX_SAFE_INTEGER ? `of at least ${min}` : `from ${min} to ${max}`;
    this.add(field, `must be a whole number ${range}, is ${value}`);
  }

  /** Adds a problem when the value is not one of `allowed`. */
  requireOneOf(field: string, value: string, allowed: readonly string[]): void {
    if (!allowed.includes(value))
      this.add(field, `must be one of ${allowed.join(', ')}, is ${value}`);
  }

  /** Adds a problem when the value is the empty text. */
  requireNotEmpty(field: string, value: string): void {
    if (value === '') this.add(field, 'must not be empty');
  }

  /** @throws InvalidInputError with all collected problems, if there are any. */
  throwIfAny(): void {
    if (this.violations.length > 0) throw new InvalidInputError(this.violations);
  }
}
