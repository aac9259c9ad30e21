import type { LogLine, LogRequest } from './container-runtime.js';

/** Whether a line fulfils the conditions of a request that concern single lines (all but `tailLines` and `follow`). */
export function selectsLine(request: LogRequest, line: Pick<LogLine, 'sequence' | 'stream' | 'timeMs'>): boolean {
  if (request.afterSequence !== undefined && line.sequence <= request.afterSequence) return false;
  if (request.sinceMs !== undefined && line.timeMs < request.sinceMs) return false;
  return request.streams === undefined || request.streams.includes(line.stream);
}
