/** Length of a line in bytes, with its line feed. */
export const LINE_BYTES = 100;

/**
 * A program that writes a first line and then numbered lines of {@link LINE_BYTES}, on request
 * through its input or by HTTP: at full speed for `/flood/<lines>`, evenly for `/pace/<lines a
 * second>/<lines>`.
 */
export const WRITER_COMMAND = [
  'node',
  '-e',
  `const { writeSync } = require('node:fs');
   const rest = ' ' + 'x'.repeat(${LINE_BYTES - 11}) + '\\n';
   let number = 0;
   const write = (count) => {
     let lines = '';
     for (const end = number + count; number < end;) lines += String(++number).padStart(9, '0') + rest;
     for (let at = 0; at < lines.length;) at += writeSync(1, lines.slice(at));
   };
   const flood = (count) => { for (let left = count; left > 0; left -= 500) write(Math.min(500, left)); };
   const pace = (perSecond, count) => {
     const began = performance.now();
     let done = 0;
     const timer = setInterval(() => {
       const due = Math.min(count, Math.floor((performance.now() - began) * perSecond / 1_000));
       if (due > done) write(due - done);
       done = due;
       if (done === count) clearInterval(timer);
     }, 5);
   };
   write(1);
   require('node:http').createServer(({ url }, response) => {
     response.end();
     const [, what, ...counts] = url.split('/');
     (what === 'flood' ? flood : pace)(...counts.map(Number));
   }).listen(process.env.PORT ?? 80, process.env.PORT === undefined ? '0.0.0.0' : '127.0.0.1');`,
];
