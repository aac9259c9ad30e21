import { errorFields, type Log } from '@cloudless/base';

/** The steps that close what was opened, in the reverse order. */
export class CloseSteps {
  private readonly steps: (() => Promise<void> | void)[] = [];

  constructor(private readonly log: Log) {}

  /** Adds a step, which runs before all steps that were added earlier. */
  add(step: () => Promise<void> | void): void {
    this.steps.push(step);
  }

  /** Runs each step once. A step that fails is logged, and the others run all the same. */
  async run(): Promise<void> {
    for (const step of this.steps.reverse().splice(0)) {
      try {
        await step();
      } catch (reason) {
        this.log.error('shutdown step failed', errorFields(reason));
      }
    }
  }
}
