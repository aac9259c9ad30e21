/**
 * Offset of the local time zone from UTC at a time, in minutes: 60 in Paris in winter.
 * @param timeMs - Wall-clock time in milliseconds since the epoch.
 */
export function getLocalOffsetMinutes(timeMs: number): number {
  return -new Date(timeMs).getTimezoneOffset();
}

/**
 * Formats a time as RFC 3339 with the offset of a time zone, in milliseconds:
 * `2026-01-31T13:00:00.250+01:00`. The offset 0 is `Z`.
 * @param timeMs - Wall-clock time in milliseconds since the epoch.
 * @param offsetMinutes - Offset of the time zone from UTC at that time.
 */
export function formatZonedTime(timeMs: number, offsetMinutes: number): string {
  const text = new Date(timeMs + offsetMinutes * 60_000).toISOString().slice(0, -1);
  if (offsetMinutes === 0) return `${text}Z`;
  const [hours, minutes] = [Math.floor(Math.abs(offsetMinutes) / 60), Math.abs(offsetMinutes) % 60];
  return `${text}${offsetMinutes < 0 ? '-' : '+'}${pad(hours)}:${pad(minutes)}`;
}

const pad = (number: number): string => String(number).padStart(2, '0');
