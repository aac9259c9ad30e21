/**
 * A program that creates objects on one line, most of which outlive collections of the young
 * generation. Runs after `prepare-v8.ts` if its argument is `prepared`. Prints `begin` before the
 * first object.
 */
import { writeSync } from 'node:fs';

if (process.argv[2] === 'prepared') await import('../prepare-v8.js');

const COUNT = 400_000;
const create = (index: number): object => ({ index, next: index + 1, both: [index, index + 1] });
const places = Array.from({ length: COUNT }, (): object | undefined => undefined);

writeSync(1, 'begin\n');
for (let index = 0; index < 3 * COUNT; index += 1) places[index % COUNT] = create(index);
