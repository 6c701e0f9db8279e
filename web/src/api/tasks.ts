/** Tasks and their schedules. The event `changed` names `tasks` whenever one gets on. */

import { useInfiniteQuery, useQuery } from "@tanstack/react-query";

import { get, post, postTo, put, type QueryOf } from "./client";
import { useChange, useGet } from "./queries";
import type { SetSchedule, StartTask, TaskKind } from "./schema";

/** Tasks, newest first, page by page. */
export const useTasks = (query: QueryOf<"/tasks">) =>
  useInfiniteQuery({
    queryKey: ["tasks", query],
    queryFn: ({ pageParam, signal }) => get("/tasks", { query: { ...query, page_size: 50, page_token: pageParam }, signal }),
    initialPageParam: "",
    getNextPageParam: (page) => page.next_page_token ?? undefined,
  });

/** One task with its whole log. */
export const useTask = (id: string) =>
  useQuery({ queryKey: ["task", id], queryFn: ({ signal }) => get("/tasks/{id}", { params: { id }, signal }) });

export const useSchedules = () => useGet("schedules", "/schedules");

export const useStartTask = () => useChange(["tasks"], (task: StartTask) => post("/tasks", task));

export type Steering = "pause" | "resume" | "cancel";

/** Pauses, resumes or cancels a task. */
export const useSteer = (id: string) => useChange(["tasks"], (how: Steering) => postTo(`/tasks/{id}/${how}`, { id }, undefined));

export const useSetSchedule = (kind: TaskKind) =>
  useChange(["tasks"], (schedule: SetSchedule) => put("/schedules/{kind}", { kind }, schedule));
